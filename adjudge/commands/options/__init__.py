"""Options that several commands take: how they are typed and explained, and what reaches a command of them."""
