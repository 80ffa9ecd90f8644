"""What `bench/wild.py` is made of: programs drawn from a seed, their meaning, the machines they run on, and the report."""
