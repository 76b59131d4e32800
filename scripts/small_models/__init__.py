"""The networks of `make_small_models.py`: those written in PyTorch and those put together node by node."""
