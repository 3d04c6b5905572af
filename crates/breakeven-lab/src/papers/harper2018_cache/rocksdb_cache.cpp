// RocksDB's block cache, with its compressed secondary cache or without, on a trace over pages.
//
//     rocksdb_cache PAGES PAGE_BYTES TRACE WARM RAW_BYTES COMPRESSED_BYTES SHARD_BITS
//
// TRACE holds pairs of a key and the number of its page, little-endian words of 8 bytes. The first WARM
// accesses are not counted. SHARD_BITS of -1 are RocksDB's own choice. A miss copies its page. Prints accesses, misses, seconds of processor time,
// and bytes of resident memory before and after, all of the counted part but the memory.
//
// Written against Debian's librocksdb 7.8; `rivals.rs` compiles it where g++ and the headers are.

#include <malloc.h>
#include <rocksdb/cache.h>
#include <rocksdb/secondary_cache.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

using rocksdb::Cache;
using rocksdb::Slice;
using rocksdb::Status;

namespace {

struct Block {
  size_t size;
  char bytes[];
};

Block* make_block(const void* bytes, size_t size) {
  Block* block = static_cast<Block*>(malloc(sizeof(Block) + size));
  if (block == nullptr) abort();
  block->size = size;
  memcpy(block->bytes, bytes, size);
  return block;
}

size_t size_of(void* block) { return static_cast<Block*>(block)->size; }

Status save(void* from, size_t offset, size_t length, void* to) {
  memcpy(to, static_cast<Block*>(from)->bytes + offset, length);
  return Status::OK();
}

void remove(const Slice&, void* block) { free(block); }

// Into memory of its size: a vector that grows would leave some to the allocator, resident and free, which the
// cache would fill without growing.
std::vector<char> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<char> bytes(file ? static_cast<size_t>(file.tellg()) : 0);
  file.seekg(0);
  if (!file.read(bytes.data(), bytes.size())) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(1);
  }
  return bytes;
}

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

long resident_bytes() {
  long all = 0, resident = 0, of_files = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == nullptr || fscanf(file, "%ld %ld %ld", &all, &resident, &of_files) != 3) abort();
  fclose(file);
  return (resident - of_files) * sysconf(_SC_PAGESIZE);
}

}  // namespace

int main(int count, char** words) {
  if (count != 8) {
    fprintf(stderr, "usage: %s PAGES PAGE_BYTES TRACE WARM RAW_BYTES COMPRESSED_BYTES SHARD_BITS\n", words[0]);
    return 2;
  }
  const std::vector<char> pages = read_file(words[1]);
  const size_t page_bytes = strtoull(words[2], nullptr, 10);
  const std::vector<char> trace = read_file(words[3]);
  const size_t warm = strtoull(words[4], nullptr, 10);

  rocksdb::LRUCacheOptions options;
  options.capacity = strtoull(words[5], nullptr, 10);
  const size_t compressed_bytes = strtoull(words[6], nullptr, 10);
  options.num_shard_bits = atoi(words[7]);
  malloc_trim(0);
  const long before = resident_bytes();
  if (compressed_bytes > 0) {
    rocksdb::CompressedSecondaryCacheOptions secondary;
    secondary.capacity = compressed_bytes;
    secondary.num_shard_bits = options.num_shard_bits;
    options.secondary_cache = rocksdb::NewCompressedSecondaryCache(secondary);
  }
  std::shared_ptr<Cache> cache = rocksdb::NewLRUCache(options);
  const Cache::CacheItemHelper helper(size_of, save, remove);
  const Cache::CreateCallback create = [](const void* bytes, size_t size, void** block, size_t* charge) {
    *block = make_block(bytes, size);
    *charge = malloc_usable_size(*block);
    return Status::OK();
  };

  uint64_t misses = 0;
  double begun = cpu_seconds();
  const size_t accesses = trace.size() / 16;
  for (size_t at = 0; at < accesses; ++at) {
    if (at == warm) {
      misses = 0;
      begun = cpu_seconds();
    }
    uint64_t page;
    memcpy(&page, &trace[16 * at + 8], 8);
    const char* wanted = &pages[page * page_bytes];
    const Slice key(&trace[16 * at], 8);
    Cache::Handle* handle = cache->Lookup(key, &helper, create, Cache::Priority::LOW, true);
    if (handle == nullptr || cache->Value(handle) == nullptr) {
      if (handle != nullptr) cache->Release(handle);
      ++misses;
      Block* block = make_block(wanted, page_bytes);
      const Status status = cache->Insert(key, block, &helper, malloc_usable_size(block), &handle);
      if (!status.ok()) {
        fprintf(stderr, "%s\n", status.ToString().c_str());
        return 1;
      }
    }
    const Block* found = static_cast<Block*>(cache->Value(handle));
    const size_t ends[] = {0, page_bytes / 2, page_bytes - 1};
    for (size_t end : ends) {
      if (found->size != page_bytes || found->bytes[end] != wanted[end]) {
        fprintf(stderr, "access %zu: another page came back\n", at);
        return 1;
      }
    }
    cache->Release(handle);
  }
  printf("%zu %llu %.9f %ld %ld\n", accesses - warm, static_cast<unsigned long long>(misses), cpu_seconds() - begun,
         before, resident_bytes());
}
