# What was renamed on purpose, old name to new: applied to the names of outputs and to their text before they are summed,
# so that a program from before the renaming and one from after it have the same sums. For example:
#   s/"old\/metric":/"new\/metric":/g
