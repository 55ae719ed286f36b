"""Which engine a judge asks, when it is opened, lent and put to sleep."""
