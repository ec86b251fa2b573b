-- Commits: replaces the state that the writer started from with staged blobs and new metadata, or changes nothing.
-- KEYS: metadata, then for each changed cell the staged key and the live key, then the live keys of removed cells.
-- ARGV: lineage, epoch, offset and commit_id that the writer started from; new offset, commit_id, blobs, totals and
-- checksum; number of changed cells.
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
if stored[3] == ARGV[5] and stored[4] == ARGV[6] then
  return 'done' -- an earlier attempt of this commit succeeded, and its reply was lost
end
if stored[3] ~= ARGV[3] or stored[4] ~= ARGV[4] then
  return 'conflict'
end
local last = 1 + 2 * tonumber(ARGV[10])
for i = 2, last, 2 do
  if redis.call('EXISTS', KEYS[i]) == 0 then
    return 'staging_expired'
  end
end
-- only writes follow; the first ones change nothing, so that a missing permission stops the script before any change
redis.call('RENAME', KEYS[1], KEYS[1])
redis.call('PERSIST', KEYS[1])
redis.call('HSET', KEYS[1], 'epoch', ARGV[2])
for i = last + 1, #KEYS do
  redis.call('DEL', KEYS[i])
end
for i = 2, last, 2 do
  redis.call('RENAME', KEYS[i], KEYS[i + 1])
  redis.call('PERSIST', KEYS[i + 1])
end
-- the metadata come last: until they are written, a retry completes a partial commit
redis.call(
  'HSET', KEYS[1], 'offset', ARGV[5], 'commit_id', ARGV[6], 'blobs', ARGV[7], 'totals', ARGV[8], 'checksum', ARGV[9]
)
return 'done'
