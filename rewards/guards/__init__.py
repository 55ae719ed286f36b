"""What watches a reward in training and says when it is being fooled."""
