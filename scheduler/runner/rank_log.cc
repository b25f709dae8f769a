#include "scheduler/runner/rank_log.h"

#include <regex>
#include <sstream>

#include "scheduler/launch/log_file.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/launch/worker_program.h"

namespace motley {
namespace {

constexpr size_t kLongestQuote = 300;

/// mpirun frames its messages with dashes and says the most important thing first. That a rank
/// ended the others says nothing of why.
std::string first_words_of_mpirun(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("MPI_ABORT was invoked") != std::string::npos) return "";
    if (line.find_first_not_of("- \t\r") != std::string::npos) return line;
  }
  return "";
}

/// A record of the log (core/log.h) that tells of nothing wrong: "18:29:41.108 rank 1 info: …".
bool is_harmless_record(const std::string& line) {
  static const std::regex record("\\d\\d:\\d\\d:\\d\\d\\.\\d{3} (rank \\d+ )?(info|warning): .*");
  return std::regex_match(line, record);
}

std::string printable(std::string text) {
  if (text.size() > kLongestQuote) text = text.substr(0, kLongestQuote) + "…";
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  return text;
}

}  // namespace

Error with_log(const AttemptEnd& end, const std::vector<RankPlacement>& ranks,
               const std::string& log_directory) {
  Error error = end.error;
  std::string path = launch_log_path(log_directory);
  std::string quote;
  if (end.rank < 0) {
    if (!end.in_own_words) quote = first_words_of_mpirun(tail_of(path));
  } else {
    const std::string& host = ranks[static_cast<size_t>(end.rank)].host;
    path = rank_log_path(log_directory, end.rank);
    if (is_this_host(host))
      quote = last_words_of_worker(tail_of(path));
    else
      path = host + ":" + path;
  }
  if (is_harmless_record(quote)) quote.clear();
  // A rank that said why it ended has written the same to its log.
  if (!quote.empty() && error.message.find(quote) == std::string::npos)
    error.message += ": " + printable(quote);
  error.message += " (log: " + path + ")";
  return error;
}

}  // namespace motley
