// cqdb.hpp: the string tables in CRFsuite's model files (a constant quick database, little-endian).
//
//   "CQDB", size, flags, byte order mark, number of strings, place of the back table
//   256 x (place, number) of hash tables
//   records: number, size, string and a zero byte
//   hash tables: (hash, place of the record), twice as many as records, linear probing
//   back table: place of the record of each number
//
// Places count from the beginning of the database.
#pragma once
#include <string>
#include <string_view>

#include "text/strings.hpp"

namespace crfkit {

// The strings of the database at the beginning of `data`, which may be longer. Throws Error where it is damaged.
StringTable read_cqdb(std::string_view data, u32 expected);
std::string write_cqdb(const StringTable& strings);

}  // namespace crfkit
