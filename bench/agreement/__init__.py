"""How far judges agree with people: statistics with intervals, public data sets, tables beside published figures."""
