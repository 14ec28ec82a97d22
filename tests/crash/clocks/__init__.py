"""A folder for PYTHONPATH: what stands in it is loaded by Python itself."""
