"""Arrays in host and device memory: creation, conversion and names of devices."""
