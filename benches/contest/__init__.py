"""The contest behind `peers.py`: who takes part, in what, and how they take turns."""
