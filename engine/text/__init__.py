"""Between text and tokens: safe prompts, the label compiler, forms of what is written."""
