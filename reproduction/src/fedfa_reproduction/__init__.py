"""The paper's tables and figures, beside the library: ``fedfa paper NAME`` makes one.

command      the command                                study        what was asked for: scale, workloads, seeds
workloads    data, models and settings, by scale        contenders   the strategies compared
comparisons  the runs that tables and figures need      plan         which of them are made first
records      the runs that are there, in few files      matching     which of them answers a planned run
queue        making what is missing                     measures     what is read off a run
recipes      every table and figure by name             paper.toml   the numbers that the paper prints
tables, figures, same_time, speeds, questions, phones   the results
selection, making, page, markdown                       from a name to a page
"""
