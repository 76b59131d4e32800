"""The comparison behind `peers.py`: the programs, the work that is timed, and how repeats are interleaved."""
