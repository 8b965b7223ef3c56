"""What GPUs would make of the Triton kernels: compiled for real targets, on a machine without one."""
