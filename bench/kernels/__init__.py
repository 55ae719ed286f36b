"""`adjudge bench kernels`: what kernels take beside their limits and other ways to compute the same."""
