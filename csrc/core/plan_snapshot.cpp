// A plan taken up elsewhere without replaying how it came to be: the tree, counts and works at its last change, as
// bytes.
#include <algorithm>
#include <cstring>

#include "error.hpp"
#include "hash.hpp"
#include "plan.hpp"

namespace cuvee {
namespace {

constexpr u32 kSnapshotFormat = 0x31535643;  // "CVS1"

constexpr std::size_t kSealBytes = 32;

// Digest of all that stands before it: a damaged snapshot is refused, not followed.
std::string seal_of(std::span<const std::byte> content) {
  Digest digest;
  digest.update(content);
  return digest.hex();
}

class Writer {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto at = bytes.size();
    bytes.resize(at + sizeof(T));
    std::memcpy(bytes.data() + at, &value, sizeof(T));
  }
  std::vector<std::byte> bytes;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    CUVEE_EXPECTS(bytes_.size() >= sizeof(T), std::invalid_argument,
                  "snapshot must be whole, but got one that ends early");
    T value;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  bool empty() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
};

enum class Tag : std::uint8_t { leaf, node };

// Children first, as they are made.
void put_tree(Writer& out, const Forest& forest, Ref ref) {
  if (ref.is_leaf()) {
    out.put(Tag::leaf);
    out.put(ref.source().value);
    return;
  }
  const Node& node = forest[ref];
  put_tree(out, forest, node.child[0]);
  put_tree(out, forest, node.child[1]);
  out.put(Tag::node);
  out.put(node.phase);
  out.put(node.fraction);
  out.put(node.base);
  out.put(node.weight);
}

Ref get_tree(Reader& in, u64 count, u64 sources, Forest& forest, std::span<const u64> caps) {
  std::vector<Ref> open;
  for (u64 i = 0; i < count; ++i) {
    if (in.get<Tag>() == Tag::leaf) {
      const SourceId source{in.get<u32>()};
      CUVEE_EXPECTS(source.value < sources, std::invalid_argument, "snapshot must name sources below ", sources,
                    ", but got ", source.value);
      open.push_back(Ref::leaf(source));
      continue;
    }
    CUVEE_EXPECTS(open.size() >= 2, std::invalid_argument,
                  "snapshot must hold one tree, but got a node without children");
    Node node{};
    node.phase = in.get<i128>();
    node.fraction = in.get<u64>();
    node.base[0] = in.get<u64>();
    node.base[1] = in.get<u64>();
    node.weight = in.get<double>();
    node.child[1] = open.back();
    open.pop_back();
    node.child[0] = open.back();
    open.back() = forest.add(node, caps);
  }
  CUVEE_EXPECTS(open.size() == 1, std::invalid_argument, "snapshot must hold one tree, but got ", open.size());
  return open.back();
}

u64 tree_size(const Forest& forest, Ref ref) {
  return ref.is_leaf() ? 1 : 1 + tree_size(forest, forest[ref].child[0]) + tree_size(forest, forest[ref].child[1]);
}

}  // namespace

std::vector<std::byte> Plan::snapshot(Slot slot) const {
  const std::shared_lock lock(mutex_);
  const Segment* taken = segments_.data();
  for (const Segment& segment : segments_)
    if (segment.first <= slot.value && segment.cause != Cause::exhaustion) taken = &segment;
  const auto integral = integrals(taken->first);

  Writer out;
  out.put(kSnapshotFormat);
  out.put(static_cast<u32>(sources_.size()));
  out.put(taken->first);
  out.put(taken->origin);
  out.put(taken->root_clock);
  out.put(taken->bound);
  out.put(versions_[taken->version].largest);
  for (u32 k = 0; k < sources_.size(); ++k) {
    i128 residual = 0;
    const u64 draws = draws_when_absent(sources_[k], taken->first, &residual);
    out.put(draws);
    out.put(residual);
    const auto& given = *versions_[taken->version].given;
    out.put(k < given.size() ? given[k] : 0.0);
    out.put(integral[k]);
  }
  out.put(tree_size(forest_, taken->root));
  put_tree(out, forest_, taken->root);
  const std::string seal = seal_of(out.bytes);
  const auto bytes = std::as_bytes(std::span(seal));
  out.bytes.insert(out.bytes.end(), bytes.begin(), bytes.end());
  return std::move(out.bytes);
}

void Plan::restore(std::span<const std::byte> snapshot) {
  const std::unique_lock lock(mutex_);
  CUVEE_EXPECTS(snapshot.size() > kSealBytes, std::invalid_argument, "snapshot must be whole, but got ",
                snapshot.size(), " bytes");
  const auto content = snapshot.first(snapshot.size() - kSealBytes);
  const std::string seal = seal_of(content);
  CUVEE_EXPECTS(std::ranges::equal(std::as_bytes(std::span(seal)), snapshot.last(kSealBytes)), std::invalid_argument,
                "snapshot must be as it was taken, but got one whose digest is not ", seal);
  Reader in(content);
  const auto format = in.get<u32>();
  CUVEE_EXPECTS(format == kSnapshotFormat, std::invalid_argument, "snapshot must be of format ", kSnapshotFormat,
                ", but got ", format);
  const auto count = in.get<u32>();
  CUVEE_EXPECTS(count == sources_.size(), std::invalid_argument, "snapshot must be of a plan of ", sources_.size(),
                " sources, but got ", count);
  const auto first = in.get<u64>();
  const auto origin = in.get<u64>();
  const auto root_clock = in.get<u64>();
  const auto bound = in.get<double>();
  const auto largest = in.get<double>();

  std::vector<Departure> departures;
  std::vector<Source> sources = sources_;
  std::vector<double> given(count);
  std::vector<double> integral(count);
  for (u32 k = 0; k < count; ++k) {
    const auto draws = in.get<u64>();
    const auto residual = in.get<i128>();
    sources[k].departure = static_cast<i64>(k);
    departures.push_back({SourceId{k}, first, draws, residual, -1});
    given[k] = in.get<double>();
    integral[k] = in.get<double>();
  }
  Forest forest;
  const auto size = in.get<u64>();
  const Ref root = get_tree(in, size, count, forest, caps_);
  CUVEE_EXPECTS(in.empty(), std::invalid_argument, "snapshot must end after its tree, but got more bytes");

  sources_ = std::move(sources);
  departures_ = std::move(departures);
  versions_ = {{std::make_shared<const std::vector<double>>(std::move(given)), largest}};
  integral_ = std::move(integral);
  forest_ = std::move(forest);
  segments_ = {{first, origin, root, root_clock, first, 0, forest_.size(), count, bound, Cause::start}};
  ended_at_ = kEndless;
  ended_by_ = -1;
}

}  // namespace cuvee
