"""Library kernels, written in the tile language itself."""
