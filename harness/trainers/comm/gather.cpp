// Header first, payload second: c10d accepts equal byte counts of different shape silently, and aborts on
// unequal ones.

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <stdexcept>

#include "harness/trainers/comm/comm.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxTensors = 8;
constexpr int64_t kMaxDims = 6;
// rows, step, tag, number of tensors, then per tensor: type, dimensions beyond rows, their sizes.
constexpr int64_t kHeaderLength = 4 + static_cast<int64_t>(kMaxTensors) * (2 + kMaxDims);

int64_t tag_code(std::string_view tag) {
  uint64_t code = 1469598103934665603ULL;
  for (const char c : tag) {
    code = (code ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return static_cast<int64_t>(code >> 1);
}

at::Tensor make_header(const std::vector<at::Tensor>& tensors, int64_t step, std::string_view tag) {
  at::Tensor header = at::zeros({kHeaderLength}, at::kLong);
  int64_t* h = header.mutable_data_ptr<int64_t>();
  h[0] = tensors.front().size(0);
  h[1] = step;
  h[2] = tag_code(tag);
  h[3] = static_cast<int64_t>(tensors.size());
  int64_t* at = h + 4;
  for (const at::Tensor& tensor : tensors) {
    at[0] = static_cast<int64_t>(tensor.scalar_type());
    at[1] = tensor.dim() - 1;
    std::copy(tensor.sizes().begin() + 1, tensor.sizes().end(), at + 2);
    at += 2 + kMaxDims;
  }
  return header;
}

std::string what_differs(const int64_t* mine, const int64_t* theirs) {
  if (mine[1] != theirs[1]) {
    return c10::str("is at step ", theirs[1], ", not ", mine[1]);
  }
  if (mine[2] != theirs[2]) {
    return "calls another collective";
  }
  if (mine[3] != theirs[3]) {
    return c10::str("sends ", theirs[3], " tensors, not ", mine[3]);
  }
  for (int64_t t = 0; t < mine[3]; ++t) {
    const int64_t* a = mine + 4 + t * (2 + kMaxDims);
    const int64_t* b = theirs + 4 + t * (2 + kMaxDims);
    if (a[0] != b[0]) {
      return c10::str("sends tensor ", t, " as ", static_cast<at::ScalarType>(b[0]), ", not ",
                      static_cast<at::ScalarType>(a[0]));
    }
    if (!std::equal(a + 1, a + 2 + kMaxDims, b + 1)) {
      return c10::str("sends tensor ", t, " with rows of shape ", at::IntArrayRef(b + 2, b[1]), ", not ",
                      at::IntArrayRef(a + 2, a[1]));
    }
  }
  return {};
}

}  // namespace

GatheredRows gather_rows(Comm& comm, const std::vector<at::Tensor>& tensors, int64_t step,
                         std::string_view tag) {
  if (tensors.empty() || tensors.size() > kMaxTensors) {
    throw std::invalid_argument(
        c10::str(tag, ": 1 to ", kMaxTensors, " tensors can be gathered, not ", tensors.size()));
  }
  const int64_t rows = tensors.front().size(0);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.dim() < 1 || tensor.dim() - 1 > kMaxDims || tensor.size(0) != rows) {
      throw std::invalid_argument(c10::str(tag, ": tensors to gather must share dimension 0"));
    }
  }
  const std::string name(tag);
  const at::Tensor headers = comm.all_gather(make_header(tensors, step, tag), name + ".header");
  const int64_t* mine = headers.const_data_ptr<int64_t>() + comm.rank() * kHeaderLength;
  GatheredRows gathered;
  int64_t most = 0;
  for (int r = 0; r < comm.world_size(); ++r) {
    const int64_t* theirs = headers.const_data_ptr<int64_t>() + r * kHeaderLength;
    if (const std::string difference = what_differs(mine, theirs); !difference.empty()) {
      throw std::runtime_error(
          c10::str(tag, ": rank ", r, " ", difference, " (seen from rank ", comm.rank(), ")"));
    }
    most = std::max(most, theirs[0]);
    gathered.total_rows += theirs[0];
  }
  gathered.offset = comm.rank() * most;
  gathered.valid = at::zeros({comm.world_size() * most}, at::kBool);
  for (int r = 0; r < comm.world_size(); ++r) {
    std::fill_n(gathered.valid.mutable_data_ptr<bool>() + r * most, headers.const_data_ptr<int64_t>()[r * kHeaderLength], true);
  }

  // One payload: each row's tensors side by side as bytes.
  std::vector<at::Tensor> bytes;
  for (const at::Tensor& tensor : tensors) {
    const int64_t row_elements =
        rows > 0 ? tensor.numel() / rows : c10::multiply_integers(tensor.sizes().slice(1));
    bytes.push_back(tensor.detach().contiguous().reshape({rows, row_elements}).view(at::kByte));
  }
  at::Tensor payload = at::cat(bytes, 1);
  if (rows < most) {
    payload = at::constant_pad_nd(payload, {0, 0, 0, most - rows});
  }
  const at::Tensor all =
      comm.all_gather(payload.contiguous(), name).reshape({comm.world_size() * most, payload.size(1)});
  int64_t column = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    std::vector<int64_t> shape = tensors[t].sizes().vec();
    shape[0] = comm.world_size() * most;
    gathered.columns.push_back(
        all.narrow(1, column, bytes[t].size(1)).contiguous().view(tensors[t].scalar_type()).reshape(shape));
    column += bytes[t].size(1);
  }
  return gathered;
}

}  // namespace lockstep
