-- Imports counts: stores staged blobs and metadata for a partition without metadata, or changes nothing.
-- KEYS: metadata, then for each cell the staged key and the live key. ARGV: fields and values of the metadata, starting
-- with lineage, offset and commit_id.
if redis.call('EXISTS', KEYS[1]) == 1 then
  local stored = redis.call('HMGET', KEYS[1], 'lineage', 'offset', 'commit_id')
  if stored[1] == ARGV[2] and stored[2] == ARGV[4] and stored[3] == ARGV[6] then
    return 'done' -- an earlier attempt succeeded, and its reply was lost
  end
  return 'conflict'
end
for i = 2, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i]) == 0 then
    return 'staging_expired'
  end
end
-- only writes follow; if a missing permission stops them, no metadata name the blobs, so no reader uses them
for i = 2, #KEYS, 2 do
  redis.call('RENAME', KEYS[i], KEYS[i + 1])
  redis.call('PERSIST', KEYS[i + 1])
end
redis.call('HSET', KEYS[1], unpack(ARGV))
return 'done'
