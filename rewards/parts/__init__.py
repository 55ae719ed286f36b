"""What rewards are composed of, without a judge: checks, functions, sums, products, gates."""
