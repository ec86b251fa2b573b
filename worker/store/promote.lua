-- Commits: puts staged blobs and new metadata in the place of what the writer started from, or changes nothing.
-- KEYS: metadata, then for each changed cell the staged key and the live key, then the live keys of cells that are gone.
-- ARGV: lineage, epoch, offset and commit_id that the writer started from; new offset, commit_id, blobs, totals, checksum; how
-- many cells are changed.
local stored = redis.call('HMGET', KEYS[1], 'lineage', 'epoch', 'offset', 'commit_id')
if not stored[1] then
  return 'lineage'
end
-- before the lineage: a claim may have replaced it by one of a newer layout
if stored[2] ~= ARGV[2] then
  return 'fenced'
end
if stored[1] ~= ARGV[1] then
  return 'lineage'
end
if stored[3] == ARGV[5] and stored[4] == ARGV[6] then
  return 'done' -- an earlier attempt of this very commit came through and its reply was lost
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
-- everything is read; a right that is missing shows by writes that change nothing, or by the first one that does
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
-- last: they say that all is done, so that a retry completes whatever else failed half-way
redis.call(
  'HSET', KEYS[1], 'offset', ARGV[5], 'commit_id', ARGV[6], 'blobs', ARGV[7], 'totals', ARGV[8], 'checksum', ARGV[9]
)
return 'done'
