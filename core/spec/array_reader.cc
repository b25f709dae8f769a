#include "core/spec/array_reader.h"

#include <algorithm>
#include <set>

#include "core/spec/yaml_keys.h"
#include "core/units.h"

namespace motley {
namespace {

constexpr const char* kIndices = "indices: a range such as 0..9, or a list such as [1, 4, 7]";
constexpr int kHighestIndex = 999'999;

tl::unexpected<Error> fail_too_many(const YamlNode& node) {
  return fail_at(node, "'array': more than " + std::to_string(ArrayTask::kMostTasks) + " jobs");
}

Result<Unit> add_range(const YamlNode& node, std::vector<ArrayDraft::Task>* tasks) {
  const auto range = node.kind == YamlNode::Kind::kScalar ? parse_count_range(node.text)
                                                          : Result<CountRange>(CountRange{});
  if (!range || range->high > kHighestIndex) return fail_expected(node, kIndices);
  if (range->high - range->low >= ArrayTask::kMostTasks) return fail_too_many(node);
  for (int index = range->low; index <= range->high; ++index) tasks->push_back({index, {}});
  return Unit{};
}

Result<Unit> read_indices(const YamlNode& node, ArrayDraft& array) {
  MOTLEY_TRY(const auto items, to_list(node, kIndices));
  if (items.empty()) return fail_expected(node, kIndices);
  if (items.size() > static_cast<size_t>(ArrayTask::kMostTasks)) return fail_too_many(node);
  for (const YamlNode* item : items) MOTLEY_TRY_VOID(add_range(*item, &array.tasks));
  std::set<int> known;
  for (const ArrayDraft::Task& task : array.tasks)
    if (!known.insert(task.index).second)
      return fail_at(node, "'array': index " + std::to_string(task.index) + " is there twice");
  if (known.size() > static_cast<size_t>(ArrayTask::kMostTasks)) return fail_too_many(node);
  return Unit{};
}

/// Every combination with one more key, the values of the last one in turns.
Result<Unit> multiply(const YamlNode& key, const YamlNode& values,
                      std::vector<ArrayDraft::Task>* tasks) {
  if (key.text == "array" || key.text.starts_with("array."))
    return fail_at(key, "'over': an array cannot go over itself");
  if (values.kind != YamlNode::Kind::kList || values.items.empty())
    return fail_at(values,
                   "'" + key.text + "': expected a list of values, found " + found_text(values));
  if (values.items.size() * tasks->size() > static_cast<size_t>(ArrayTask::kMostTasks))
    return fail_too_many(values);
  std::vector<ArrayDraft::Task> all;
  for (const ArrayDraft::Task& task : *tasks)
    for (const YamlNode& value : values.items) {
      ArrayDraft::Task& more = all.emplace_back(task);
      more.index = static_cast<int>(all.size()) - 1;
      more.values.emplace_back(key.text, value);
    }
  *tasks = std::move(all);
  return Unit{};
}

/// over: {train.seed: [1, 2, 3], train.optimizer.lr: [6e-4, 3e-4]}
Result<Unit> read_over(const YamlNode& node, ArrayDraft& array) {
  if (node.member_count() == 0)
    return fail_expected(node, "a mapping of keys to lists, such as {train.seed: [1, 2, 3]}");
  array.tasks = {{}};
  for (size_t i = 0; i < node.member_count(); ++i)
    MOTLEY_TRY_VOID(multiply(node.key(i), node.value(i), &array.tasks));
  return Unit{};
}

const YamlKeys<ArrayDraft>& array_keys() {
  static const YamlKeys<ArrayDraft> keys = {
      {"over", "a mapping of keys to lists", read_over},
      {"index", kIndices, read_indices},
      integer("at_once", &ArrayDraft::at_once, {1, ArrayTask::kMostTasks}),
  };
  return keys;
}

Result<ArrayDraft> array_of(const YamlNode& node) {
  ArrayDraft array;
  array.place = node.place();
  if (node.kind != YamlNode::Kind::kMapping) {
    MOTLEY_TRY_VOID(read_indices(node, array));
    return array;
  }
  if ((node.find("over") != nullptr) == (node.find("index") != nullptr))
    return fail_at(node, "'array': expected either 'over' or 'index'");
  MOTLEY_TRY_VOID(read_mapping(node, array_keys(), array));
  return array;
}

}  // namespace

Result<std::optional<ArrayDraft>> take_array(YamlNode& job) {
  for (size_t i = 0; i < job.member_count(); ++i) {
    if (job.key(i).text != "array") continue;
    MOTLEY_TRY(ArrayDraft array, array_of(job.value(i)));
    const auto at = job.items.begin() + static_cast<std::ptrdiff_t>(2 * i);
    job.items.erase(at, at + 2);
    return std::optional(std::move(array));
  }
  return std::optional<ArrayDraft>();
}

Result<Unit> become_task(const ArrayDraft& array, size_t task, JobSpec* job) {
  const int index = array.tasks[task].index;
  const std::string ending = "-" + std::to_string(index);
  if (task > 0 && array.tasks[task].values.empty())  // made of the first one
    job->name.resize(job->name.rfind('-'));
  job->name += ending;
  job->array = {index, static_cast<int>(array.tasks.size()), array.at_once};
  if (job->name.size() <= JobSpec::kLongestName) return Unit{};
  return fail(ErrorCode::kInvalidSpec,
              "'array': the name " + job->name + " is longer than " +
                  std::to_string(JobSpec::kLongestName) + " letters (shorten 'name')",
              array.place);
}

}  // namespace motley
