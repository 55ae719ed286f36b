"""What the command line does, one file a command; each is loaded when it is called."""
