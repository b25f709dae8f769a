#include <cstdio>
#include <nlohmann/json.hpp>

#include "scheduler/cli/command.h"
#include "scheduler/doctor/checks.h"

namespace motley {
namespace {

const char* word_of(Health health) {
  switch (health) {
    case Health::kGood:
      return "good";
    case Health::kAbsent:
      return "absent";
    case Health::kBroken:
      return "BROKEN";
  }
  return "";
}

void print(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    std::printf("%-7s %-16s %s\n", word_of(finding.health), finding.what.c_str(),
                finding.detail.c_str());
    if (!finding.fix.empty()) std::printf("%25sfix: %s\n", "", finding.fix.c_str());
  }
}

void print_json(const std::vector<Finding>& findings) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Finding& finding : findings)
    rows.push_back({{"what", finding.what},
                    {"health", word_of(finding.health)},
                    {"detail", finding.detail},
                    {"fix", finding.fix}});
  std::printf("%s\n", rows.dump(2).c_str());
}

class DoctorCommand final : public Command {
 public:
  void declare(CommandLine& line) override { line.flag("--json", "a list of findings", &as_json_); }

  Result<int> run() override {
    const std::vector<Finding> findings = check_everything();
    if (as_json_)
      print_json(findings);
    else
      print(findings);
    for (const Finding& finding : findings)
      if (finding.health == Health::kBroken) return exit_code(ErrorCode::kBrokenInstall);
    return 0;
  }

 private:
  bool as_json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_doctor_command() { return std::make_unique<DoctorCommand>(); }

}  // namespace motley
