#include "harness/base/json.h"

#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

json sealed() {
  json object = {
      {"text", "a \"b\"\n\xff"},
      {"whole", -3},
      {"real", 0.1 + 0.2},
      {"smallest", std::numeric_limits<double>::denorm_min()},
      {"list", {1, 2.0, "3", nullptr, true}},
      {"inner", {{"checksum", "of something else"}, {"empty", json::object()}, {"none", json::array()}}}};
  seal(object);
  return object;
}

std::string text_of(const json& object) { return object.dump(1, ' ', false, json::error_handler_t::replace); }

TEST(SealedJson, ComesBackFromItsTextHoweverThatIsLaidOut) {
  const std::string text = text_of(sealed());
  EXPECT_EQ(seal_problem(json::parse(text)), "");
  EXPECT_EQ(seal_problem(nlohmann::ordered_json::parse(text)), "");
  EXPECT_EQ(seal_problem(json::parse(json::parse(text).dump())), "");
  nlohmann::ordered_json turned;
  const json object = json::parse(text);
  for (auto at = object.rbegin(); at != object.rend(); ++at) turned[at.key()] = at.value();
  EXPECT_EQ(seal_problem(turned), "");
}

TEST(SealedJson, NoticesEachChangedCharacter) {
  const std::string text = sealed().dump(-1, ' ', true, json::error_handler_t::replace);
  int same = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char other : {'0', '7', 'b', '-', ' '}) {
      std::string damaged = text;
      damaged[i] = other;
      const json object = json::parse(damaged, nullptr, false);
      if (object.is_discarded() || !object.is_object()) continue;
      if (object == json::parse(text)) {
        ++same;  // another text of the same content
        continue;
      }
      EXPECT_NE(seal_problem(object), "") << damaged;
    }
  }
  EXPECT_LT(same, 40);
}

TEST(SealedJson, TellsPlaceAndNameAndType) {
  const std::string fits = "";
  const auto changed = [](auto change) {
    json object = sealed();
    change(object);
    return seal_problem(object);
  };
  EXPECT_EQ(changed([](json&) {}), fits);
  EXPECT_NE(changed([](json& j) { std::swap(j["list"][0], j["list"][1]); }), fits);
  EXPECT_NE(changed([](json& j) { j["inner"]["checksum"] = "of nothing"; }), fits);
  EXPECT_NE(changed([](json& j) { j["inner"]["empty"] = json::array(); }), fits);
  EXPECT_NE(changed([](json& j) { j["whole"] = -3.0; }), fits);
  EXPECT_NE(changed([](json& j) { j["more"] = nullptr; }), fits);
  EXPECT_NE(changed([](json& j) { j["list"][0] = "1"; }), fits);
}

TEST(SealedJson, SaysWhatIsWrong) {
  json object = sealed();
  object["whole"] = 4;
  EXPECT_THAT(seal_problem(object), StartsWith("is damaged: its checksum is "));
  object.erase("checksum");
  EXPECT_THAT(seal_problem(object), HasSubstr("has no checksum: an earlier lockstep or another program wrote it"));
  EXPECT_EQ(seal_problem(json::array()), "is not a JSON object");
}

TEST(SealedJson, SurvivesNestingWithoutEnd) {
  const std::string deep =
      "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + ", \"checksum\": \"0\"}";
  EXPECT_THAT(seal_problem(json::parse(deep)), HasSubstr("is damaged"));
}

TEST(SealedJson, IsReadFromAFile) {
  const TempFolder folder;
  std::string problem;
  EXPECT_FALSE(read_sealed(folder / "none", problem));
  EXPECT_THAT(problem, HasSubstr("cannot be read: "));
  write_text(folder / "f", text_of(sealed()).substr(0, 40));
  EXPECT_FALSE(read_sealed(folder / "f", problem));
  EXPECT_THAT(problem, StartsWith("is damaged: not JSON, or cut short, at line "));
  write_text(folder / "f", text_of(sealed()));
  const auto object = read_sealed(folder / "f", problem);
  ASSERT_TRUE(object) << problem;
  EXPECT_EQ((*object)["real"], 0.1 + 0.2);
}

}  // namespace
}  // namespace lockstep
