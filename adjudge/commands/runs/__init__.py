"""What runs of commands share: the rows they read, what they write and say, and how they are stopped and go on."""
