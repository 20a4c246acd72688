"""Models, one file each, fitted to the examples and classes of a data set."""
