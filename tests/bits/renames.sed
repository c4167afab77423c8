# What was renamed on purpose, old name to new: applied to the names of outputs and to their text before they are summed,
# so that a program from before the renaming and one from after it have the same sums.
# Metrics.
s/"time\/head":/"time\/lm_head":/g
s/"queue\/rounds":/"queue\/batches":/g
s/"queue\/replies":/"queue\/completions":/g
s/"workers\/asked_again":/"workers\/retried":/g
s/"workers\/asked_twice":/"workers\/duplicated":/g
s/"time\/bubble":/"time\/wait_rollout":/g
# Keys and kinds of recipes.
s/"max_sequences":/"max_num_seqs":/g
s/"max_batch_tokens":/"max_num_batched_tokens":/g
s/"prefix_caching":/"enable_prefix_caching":/g
s/"stop_ids":/"stop_token_ids":/g
s/"mini_batches":/"num_mini_batches":/g
s/"too_long":/"overlong_rows":/g
s/"max_failure_rate":/"max_reward_failure_rate":/g
s/"kind": "labelled"/"kind": "unpaired_preference"/g
s/"recompute": "block"/"recompute": "full"/g
