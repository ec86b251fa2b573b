-- Imports: puts staged blobs and metadata where a partition has none, or changes nothing.
-- KEYS: metadata, then for each cell the staged key and the live key. ARGV: the fields and values to begin with, of which
-- the first three are lineage, offset and commit_id.
if redis.call('EXISTS', KEYS[1]) == 1 then
  local stored = redis.call('HMGET', KEYS[1], 'lineage', 'offset', 'commit_id')
  if stored[1] == ARGV[2] and stored[2] == ARGV[4] and stored[3] == ARGV[6] then
    return 'done' -- an earlier attempt came through and its reply was lost
  end
  return 'conflict'
end
for i = 2, #KEYS, 2 do
  if redis.call('EXISTS', KEYS[i]) == 0 then
    return 'staging_expired'
  end
end
-- everything is read: from here on only writes; what a missing right leaves behind nobody reads, without metadata
for i = 2, #KEYS, 2 do
  redis.call('RENAME', KEYS[i], KEYS[i + 1])
  redis.call('PERSIST', KEYS[i + 1])
end
redis.call('HSET', KEYS[1], unpack(ARGV))
return 'done'
