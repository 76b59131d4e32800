"""What `compare_peers.py` compares: the material, the peers, and how agreement is measured."""
