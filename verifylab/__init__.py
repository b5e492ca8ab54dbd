"""A workbench for CUDA-graph keys of batched speculative verify.

Where does the canonical depth-to-slot assignment pay, why, and what would be better?

Importing this package needs no GPU and no Jupyter, and stays quick: the modules are imported
by name (``from verifylab import ordering``), never eagerly from here.
"""

__version__ = "0.1.0"
