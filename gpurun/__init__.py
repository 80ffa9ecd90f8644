"""What the programs on machines with an NVIDIA GPU share: devices, inputs, comparison, processes. It imports none of them."""
