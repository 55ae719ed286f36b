"""How far judges agree with people: statistics with intervals, public data sets, tables beside published figures.

Files become a `DataSet`; what a judge, a baseline or a model says of its rows, a `Rater` (`Scores` of texts, `Choices`
of pairs); a rater beside people, `Line`s of `Estimate`s; and these a table, CSV and JSON.
"""
