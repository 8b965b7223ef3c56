"""The kernels themselves, in Triton's language. What launches them lies one folder up, in files of the same names."""
