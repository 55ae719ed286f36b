"""EvolvR's data evolution: stories with human scores become rationales that lead to them (arXiv 2508.06046)."""
