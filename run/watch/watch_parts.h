#pragma once
// The files of the live view's page, which are compiled into the program.
#include <string_view>

namespace hone {

std::string_view watch_page();     // watch_page.html
std::string_view watch_chart();    // watch_chart.js: charts on a canvas
std::string_view watch_data();     // watch_data.js: runs and their rows
std::string_view watch_samples();  // watch_samples.js: the tab of samples
std::string_view watch_views();    // watch_views.js: the other tabs

}  // namespace hone
