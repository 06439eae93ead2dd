#include <pybind11/stl.h>

#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "core/minhash.hpp"
#include "texts.hpp"

namespace cuvee::bindings {
namespace {

py::tuple sketches(const Texts& texts, u32 size, bool characters, bool lowercase, u32 bands, u32 rows, u64 seed,
                   u32 threads) {
  const HeldTexts held(texts);
  const auto n = static_cast<py::ssize_t>(held.size());
  Array<u32> keys({static_cast<py::ssize_t>(bands), n});
  Array<u64> digests({n, py::ssize_t{2}});
  auto counts = empty<i64>(held.size());
  const Sketches out{{keys.mutable_data(), static_cast<std::size_t>(keys.size())},
                     {digests.mutable_data(), static_cast<std::size_t>(digests.size())},
                     out_vector(counts, "counts")};
  {
    const py::gil_scoped_release nogil;  // below: views and raw spans only
    sketch(held.views(), rule_of(size, characters, lowercase), {bands, rows}, seed, threads, out);
  }
  return py::make_tuple(keys, digests, counts);
}

Array<i64> sets_of(const Texts& texts, const Array<i64>& starts, Array<u64>& hashes, u32 size, bool characters,
                   bool lowercase, u32 threads) {
  const HeldTexts held(texts);
  const auto begins = in_vector(starts, "starts");
  const auto out = out_vector(hashes, "hashes");
  auto sizes = empty<i64>(held.size());
  const auto sizes_out = out_vector(sizes, "sizes");
  {
    const py::gil_scoped_release nogil;  // below: views and raw spans only
    shingle_sets(held.views(), rule_of(size, characters, lowercase), threads, begins, out, sizes_out);
  }
  return sizes;
}

Array<u32> signatures(const Array<u64>& hashes, const Array<i64>& sizes, u32 length, u64 seed) {
  const auto all = in_vector(hashes, "hashes");
  const auto lengths = in_vector(sizes, "sizes");
  const MinHash minhash(length, seed);
  Array<u32> array({static_cast<py::ssize_t>(lengths.size()), static_cast<py::ssize_t>(length)});
  std::span<u32> out(array.mutable_data(), static_cast<std::size_t>(array.size()));
  const py::gil_scoped_release nogil;  // below: raw spans only
  std::size_t start = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    CUVEE_EXPECTS(lengths[i] >= 0 && std::cmp_less_equal(lengths[i], all.size() - start), std::out_of_range,
                  "sizes must add up to at most ", all.size(), " hashes");
    minhash.sign(all.subspan(start, static_cast<u64>(lengths[i])), out.subspan(i * length, length));
    start += static_cast<u64>(lengths[i]);
  }
  return array;
}

Array<i64> copies(const Array<u64>& digests) {
  CUVEE_EXPECTS(digests.ndim() == 2 && digests.shape(1) == 2, std::invalid_argument, "digests must be of shape (n, 2)");
  auto array = empty<i64>(static_cast<std::size_t>(digests.shape(0)));
  const auto out = out_vector(array, "first");
  const std::span<const u64> in(digests.data(), static_cast<std::size_t>(digests.size()));
  const py::gil_scoped_release nogil;  // below: raw spans only
  first_copies(in, out);
  return array;
}

BandTable table_of(const Array<u32>& keys, const Array<u64>& order) {
  CUVEE_EXPECTS(keys.ndim() == 2, std::invalid_argument, "keys must be of shape (bands, n), but got ", keys.ndim(),
                "-D");
  return {
      {keys.data(), static_cast<std::size_t>(keys.size())}, in_vector(order, "order"), static_cast<u32>(keys.shape(0))};
}

py::tuple as_tuple(const Candidates& found) {
  Array<i64> pairs({static_cast<py::ssize_t>(found.pairs.size()), py::ssize_t{2}});
  i64* out = pairs.mutable_data();
  for (const auto& [a, b] : found.pairs) {
    *out++ = a;
    *out++ = b;
  }
  return py::make_tuple(pairs, found.complete);
}

py::tuple candidates(const Array<u32>& keys, const Array<u64>& order, const Array<u32>& members, u32 limit,
                     u32 threads) {
  const BandTable table = table_of(keys, order);
  const auto chosen = in_vector(members, "members");
  Candidates found;
  {
    const py::gil_scoped_release nogil;  // below: raw spans only
    found = candidate_pairs(table, chosen, limit, threads);
  }
  return as_tuple(found);
}

py::tuple candidates_of_band(const Array<u32>& keys, const Array<u64>& order, u32 band, u32 limit) {
  const BandTable table = table_of(keys, order);
  Candidates found;
  {
    const py::gil_scoped_release nogil;  // below: raw spans only
    found = band_pairs(table, band, limit);
  }
  return as_tuple(found);
}

std::span<const i64> in_pairs(const Array<i64>& pairs) {
  CUVEE_EXPECTS(pairs.ndim() == 2 && pairs.shape(1) == 2, std::invalid_argument, "pairs must be of shape (p, 2)");
  return {pairs.data(), static_cast<std::size_t>(pairs.size())};
}

Array<i64> shared(const Array<u64>& hashes, const Array<i64>& starts, const Array<i64>& sizes, const Array<i64>& pairs,
                  u32 threads) {
  const SetsView sets{in_vector(hashes, "hashes"), in_vector(starts, "starts"), in_vector(sizes, "sizes")};
  const auto both = in_pairs(pairs);
  auto array = empty<i64>(both.size() / 2);
  const auto out = out_vector(array, "shared");
  const py::gil_scoped_release nogil;  // below: raw spans only
  shared_hashes(sets, both, threads, out);
  return array;
}

Array<i64> roots(const Array<i64>& pairs, i64 n) {
  CUVEE_EXPECTS(n >= 0, std::invalid_argument, "n must be at least 0, but got ", n);
  const auto both = in_pairs(pairs);
  auto array = empty<i64>(static_cast<std::size_t>(n));
  const auto out = out_vector(array, "root");
  const py::gil_scoped_release nogil;  // below: raw spans only
  connected(both, out);
  return array;
}

}  // namespace

void bind_minhash(py::module_& m) {
  using py::arg;
  m.def(
      "shingle_sets", &sets_of, arg("texts"), arg("starts").noconvert(), arg("hashes").noconvert(), py::kw_only(),
      arg("size"), arg("characters"), arg("lowercase"), arg("threads") = 1,
      "Write the sorted distinct shingle hashes of text i to hashes from starts[i] on; return their numbers int64[n].");
  m.def("minhash", &signatures, arg("hashes").noconvert(), arg("sizes").noconvert(), py::kw_only(), arg("length"),
        arg("seed"), "Return the MinHash signature of each set, uint32[n, length].");
  m.def("sketches", &sketches, arg("texts"), py::kw_only(), arg("size"), arg("characters"), arg("lowercase"),
        arg("bands"), arg("rows"), arg("seed"), arg("threads") = 1,
        "Return (band keys uint32[bands, n], digests uint64[n, 2], shingles with repeats int64[n]).");
  m.def("first_copies", &copies, arg("digests").noconvert(), "Return the first text with the digest of each.");
  m.def("candidate_pairs", &candidates, arg("keys").noconvert(), arg("order").noconvert(), arg("members").noconvert(),
        py::kw_only(), arg("limit"), arg("threads") = 1,
        "Return (pairs int64[p, 2] that agree in a band, whether these are all).");
  m.def("band_pairs", &candidates_of_band, arg("keys").noconvert(), arg("order").noconvert(), py::kw_only(),
        arg("band"), arg("limit"), "The same for all texts and one band.");
  m.def("shared_hashes", &shared, arg("hashes").noconvert(), arg("starts").noconvert(), arg("sizes").noconvert(),
        arg("pairs").noconvert(), py::kw_only(), arg("threads") = 1,
        "Return the number of hashes that both sets of each pair have, int64[p].");
  m.def("connected", &roots, arg("pairs").noconvert(), py::kw_only(), arg("n"),
        "Return the smallest of those that each is linked to by pairs, int64[n].");
}

}  // namespace cuvee::bindings
