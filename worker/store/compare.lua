-- Compares a partition with the values that its owner last read or wrote. If equal, removes the expiry of its keys.
-- KEYS: metadata, then the live key of each cell. ARGV: lineage, epoch, offset, commit_id.
local stored = redis.call('HMGET', KEYS[1], 'lineage', 'epoch', 'offset', 'commit_id')
if not stored[1] then
  return 'lineage'
end
-- checked before the lineage, because a claim may have replaced it with the lineage of a newer layout
if stored[2] ~= ARGV[2] then
  return 'fenced'
end
if stored[1] ~= ARGV[1] then
  return 'lineage'
end
if stored[3] ~= ARGV[3] or stored[4] ~= ARGV[4] then
  return 'conflict'
end
for i = 2, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then
    return 'lineage'
  end
end
for i = 1, #KEYS do
  redis.call('PERSIST', KEYS[i]) -- as in claim.lua
end
return 'done'
