"""An engine on the other side of HTTP."""
