"""Rubrics of a question's own, mined from texts that people wrote (QuRL, section 3.1 and appendix A.2)."""
