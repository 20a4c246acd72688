"""How local training is computed: one by one, batched, in lanes on a GPU, or by Ray workers."""
