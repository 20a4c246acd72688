"""GPU kernels of our own. Needs Triton, which comes with torch where there is a GPU."""

# pyright: basic, reportMissingImports=false
import triton
import triton.language as tl


@triton.jit
def descend(gradients, starts, sizes, owners, firsts, model, half, lr, BLOCK: tl.constexpr):  # noqa: N803
    """``model -= lr * gradient`` for float32 models, bf16 gradients and the model's bf16 copy, one block of one tensor.

    ``gradients`` holds their addresses; ``starts`` and ``sizes`` say where each tensor lies in the flat model,
    ``owners`` which tensor a block belongs to, and ``firsts`` with which block each tensor begins.
    """
    block = tl.program_id(0)
    owner = tl.load(owners + block)
    gradient = tl.load(gradients + owner).to(tl.pointer_type(tl.bfloat16))
    inside = (block - tl.load(firsts + owner)) * BLOCK + tl.arange(0, BLOCK)
    mask = inside < tl.load(sizes + owner)
    device = tl.load(starts + owner) + inside
    value = tl.load(model + device, mask=mask) - lr * tl.load(gradient + inside, mask=mask).to(tl.float32)
    tl.store(model + device, value, mask=mask)
    tl.store(half + device, value.to(tl.bfloat16), mask=mask)
