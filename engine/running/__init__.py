"""A step's tokens through the model's own modules, with our attention in them."""
