/* Parses one line again and again with syslog-ng's own parser: ng LINES ROUNDS [NAME]. LINES is a file with a name, a tab and a message on
 * each line; a name that ends in `5424` is read with the flag `syslog-protocol`. The message object is emptied and filled again, so nothing
 * but what the parser sets is paid for. Built and called by run.sh. */
#include <syslog-ng.h>
#include <apphook.h>
#include <cfg.h>
#include <logmsg/logmsg.h>
#include <msg-format.h>
#include <plugin.h>
#include <resolved-configurable-paths.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void)
{
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
  if (argc < 3)
    return 64;
  long rounds = atol(argv[2]);
  app_startup();
  resolvedConfigurablePaths.initial_module_path = getenv("SYSLOG_NG_MODULES");
  configuration = cfg_new_snippet();
  cfg_load_module(configuration, "syslogformat");

  FILE *file = fopen(argv[1], "r");
  char line[4096];
  while (file && fgets(line, sizeof line, file))
    {
      line[strcspn(line, "\n")] = 0;
      char *text = strchr(line, '\t');
      if (!text)
        continue;
      *text++ = 0;
      if (argc > 3 && strcmp(argv[3], line) != 0)
        continue;

      MsgFormatOptions options = { 0 };
      msg_format_options_defaults(&options);
      if (strstr(line, "5424"))
        msg_format_options_process_flag(&options, "syslog-protocol");
      msg_format_options_init(&options, configuration);
      size_t length = strlen(text);
      LogMessage *message = log_msg_new_empty();
      double start = seconds();
      for (long round = 0; round < rounds; round++)
        {
          log_msg_clear(message);
          msg_format_parse_into(&options, message, (const guchar *) text, length);
        }
      double ns = (seconds() - start) * 1e9 / rounds;
      printf("%s\t%.1f\t%s\t%s\n", line, ns, log_msg_get_value(message, LM_V_HOST, NULL),
             log_msg_get_value(message, LM_V_PROGRAM, NULL));
      log_msg_unref(message);
    }
  return 0;
}
