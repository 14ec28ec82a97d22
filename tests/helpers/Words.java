package pytube.tests;

import java.util.Map;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.email.UAX29URLEmailTokenizer;
import org.apache.lucene.analysis.miscellaneous.RemoveDuplicatesTokenFilter;
import org.apache.lucene.analysis.pattern.PatternCaptureGroupTokenFilter;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.index.analysis.TokenFilterFactory;
import org.elasticsearch.index.analysis.TokenizerFactory;
import org.elasticsearch.indices.analysis.AnalysisModule.AnalysisProvider;
import org.elasticsearch.plugins.AnalysisPlugin;
import org.elasticsearch.plugins.Plugin;

/**
 * What the index of users and API keys asks for to analyze addresses, and the distribution for integration tests lacks.
 *
 * <p>The server makes the index with it; nobody searches users by their addresses here.
 */
public final class Words extends Plugin implements AnalysisPlugin {
    @Override
    public Map<String, AnalysisProvider<TokenFilterFactory>> getTokenFilters() {
        return Map.of(
            "pattern_capture",
            (index, environment, name, settings) -> filter(name, in -> captured(in, settings)),
            "unique",
            (index, environment, name, settings) -> filter(name, RemoveDuplicatesTokenFilter::new));
    }

    @Override
    public Map<String, AnalysisProvider<TokenizerFactory>> getTokenizers() {
        return Map.of(
            "uax_url_email",
            (index, environment, name, settings) ->
                TokenizerFactory.newFactory(name, UAX29URLEmailTokenizer::new));
    }

    private static TokenStream captured(TokenStream in, Settings settings) {
        Pattern[] patterns =
            settings.getAsList("patterns").stream().map(Pattern::compile).toArray(Pattern[]::new);
        return new PatternCaptureGroupTokenFilter(in, true, patterns);
    }

    private static TokenFilterFactory filter(String name, UnaryOperator<TokenStream> create) {
        return new TokenFilterFactory() {
            @Override
            public String name() {
                return name;
            }

            @Override
            public TokenStream create(TokenStream in) {
                return create.apply(in);
            }
        };
    }
}
