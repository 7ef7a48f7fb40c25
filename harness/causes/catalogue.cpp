#include "harness/causes/catalogue.h"

#include <algorithm>

namespace lockstep {

std::span<const CausePage> cause_pages() {
  static const std::vector<CausePage> pages = [] {
    std::vector<CausePage> all;
    for (const auto family :
         {causes::data_pages(), causes::gradient_pages(), causes::reduction_pages(), causes::run_pages()}) {
      all.insert(all.end(), family.begin(), family.end());
    }
    return all;
  }();
  return pages;
}

const CausePage* find_cause_page(std::string_view code) {
  const std::span<const CausePage> pages = cause_pages();
  const auto found =
      std::find_if(pages.begin(), pages.end(), [&](const CausePage& page) { return page.code == code; });
  return found == pages.end() ? nullptr : &*found;
}

}  // namespace lockstep
