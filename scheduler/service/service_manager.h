#pragma once
// What a service manager that started us wants to know (sd_notify(3), systemd's protocol of
// datagrams to $NOTIFY_SOCKET). Nothing where nobody has asked.

#include <string>

namespace motley {

/// One assignment a line: "READY=1", "STOPPING=1", "STATUS=text".
void tell_service_manager(const std::string& state);

}  // namespace motley
