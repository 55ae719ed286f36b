"""What a server of judges and rewards is asked, and answers."""
